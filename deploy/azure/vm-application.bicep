// The bridge as a VM application of an Azure Compute Gallery: for VMs and scale sets that exist.
// Upload the package and the settings as blobs first; docs/rollout.md has the commands.
//
//   az deployment group create --resource-group seb --template-file vm-application.bicep \
//     --parameters galleryName=seb version=0.2.0 packageUrl='<blob URL with SAS>' settingsUrl='<blob URL with SAS>'

@description('Name of the gallery; it is made if it does not exist. Letters, digits, dots and underscores.')
param galleryName string

@description('Version of the package: three numbers.')
param version string

@description('Address of scheduled-events-bridge_VERSION-1_amd64.deb in blob storage, with a SAS that can read.')
@secure()
param packageUrl string

@description('Address of a seb.env in blob storage, with a SAS that can read: the settings of all VMs.')
@secure()
param settingsUrl string

@description('Regions that get a copy. The VMs of other regions cannot install it.')
param regions array = [
  resourceGroup().location
]

param location string = resourceGroup().location

var install = 'install -d -m 0755 /etc/seb && install -m 0600 seb.env /etc/seb/seb.env && DEBIAN_FRONTEND=noninteractive dpkg --force-confold --install seb.deb && systemctl enable seb && systemctl restart seb'
var remove = 'dpkg --remove scheduled-events-bridge'

resource gallery 'Microsoft.Compute/galleries@2022-03-03' = {
  name: galleryName
  location: location
}

resource application 'Microsoft.Compute/galleries/applications@2022-03-03' = {
  parent: gallery
  name: 'scheduled-events-bridge'
  location: location
  properties: {
    supportedOSType: 'Linux'
    description: 'Delivers Azure Scheduled Events from each VM.'
  }
}

resource applicationVersion 'Microsoft.Compute/galleries/applications/versions@2022-03-03' = {
  parent: application
  name: version
  location: location
  properties: {
    publishingProfile: {
      source: {
        mediaLink: packageUrl
        defaultConfigurationLink: settingsUrl
      }
      manageActions: {
        install: install
        remove: remove
        // The same as install: dpkg replaces the version and the service restarts with its backlog.
        update: install
      }
      settings: {
        packageFileName: 'seb.deb'
        configFileName: 'seb.env'
      }
      targetRegions: [for region in regions: {
        name: region
        regionalReplicaCount: 1
        storageAccountType: 'Standard_LRS'
      }]
    }
  }
}

output applicationVersionId string = applicationVersion.id
